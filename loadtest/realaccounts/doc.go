// Package realaccounts tries the pump on storage accounts of Azure and says what differs from the
// simulator: `loadtest azure`, and `make azure`.
//
//	accounts.go      which accounts, by environment variables
//	budget.go        counts every request, and refuses those beyond the budget
//	gateway.go       puts the requests of the real binaries under the same budget
//	rules*.go        each rule of azsim/AZURE.md that rests on memory, asked of both sides
//	conformance.go   the suite of pump/storage/storagetest
//	pump.go          the whole pump by real binaries, and kill -9
//	plan.go          what `distributor plan` estimates, beside what was measured
//	clean.go         removes what this run has made, and what an earlier one has left
//	report.go        what came out, as JSON and as Markdown
//
// Everything that it makes has a name that begins with "qpaz", the time and a random part. Rows of
// the pump's own table begin with such a name too.
package realaccounts
