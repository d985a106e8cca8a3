// Package proof has what proves the rest: checks of documents, mutants, marks of long tests, and
// what the tests of many packages share. Only tests and measuring programs import it.
//
// # Documents
//
// It reads README.md and docs/*.md for the tests that hold them to their word: its own, which
// follow links and look commands up, and those of processtest, which type the commands.
//
// # Mutants
//
// It builds mistakes into the pump, to see that the tests find them.
//
// A mutant is a change of a few lines of a function. Production code holds no trace of it: the
// lists are data, in the file testdata/mutants.txt of a package, and one build with an overlay
// holds all mutants of all lists (go test -overlay, which Overlay prepares). A mutated function has
// a copy for each of its mutants in that build, and first asks On which mutant is at work. So one
// build plays all, one after the other.
//
// Find plays the tests and worlds that must find each mutant of a package, and writes the package's
// part of docs/reports/mutants.md. Only tests and the generator (mutants/overlay) use this package.
//
// A list holds blocks like this one. Lines that begin with # are remarks.
//
//	mutant closedRunIsOpen: that a run is closed is not looked at
//	found by closedRunIsOpen.plan
//	in pump/processor (*recorder).begin
//	-	verdict := c.look(ctx, h.Run, since)
//	+	verdict := closing.GoOn
//	in pump/internal/ledger (*Ledger).Begin
//	 	h := l.head(segment)
//	-	if h.epoch != epoch {
//	+	if false {
//
// Behind "in" stands a function or method, after the folder of its package if that is not the
// list's own. Below it stand changes as in a diff: lines with - go, lines with + come, lines with a
// blank stay and tell the place. Several changes of one function are parted by a line "@@"; a line
// "import PATH" before them names a package that only the mutant needs. The lines with - and blank
// must stand in the function exactly once, one after the other; how far they are indented does not
// matter. Otherwise the mutant fails this package's tests.
//
// What follows "found by" is a way of searching that the package's test has (worlds of one seed
// after the other, mostly), a file of its folder testdata, or the name of a test. A line "and by
// WAY" below it names a second way, perhaps of another package: whole worlds then find too what a
// test of its own finds. The package that has this way searches for the mutant, and its part of the
// report says how many of how many seeds find it.
//
// # Long tests
//
// It marks the tests that cost so much that `make test` leaves them to `make verify`.
//
// A test belongs here when it takes some two seconds of a core or more. `make test` is what an
// engineer waits for: five minutes on two cores are the aim.
//
// # Allocations
//
// It lets tests bound what code allocates for bytes that come from outside: a length that lies must
// not be believed.
//
// # Helpers
//
// It has what the tests of many packages share: Must, and a Buffer, which keeps what others are
// still writing for the tests of processes and of what logs.
package proof
