// Package worlds holds the tests of the pump as a whole, on simulated accounts in virtual time: the
// windows of vulnerability, the limits, money, and simulated worlds of one seed each. They use only
// exported names, and what package sim brings into the engine.
//
// # Simulated worlds
//
// Each seed writes a plan, and the plan is of a kind (simulation_kinds_test.go): most worlds are
// small, and each other kind has a trait that small worlds lack. The checker sees more than any
// process:
//
//   - Tasks: each task that a queue has taken from a distributor is done in the end, or in
//     quarantine, or dropped by an operator. A task of a run that was ended with --drop is missing
//     only if processors have counted it as dropped.
//   - Sources: elected distributors read real files, which grow, shrink, change, vanish and appear
//     while they are read. Some machines cannot read them for a while or never again. A sealed run
//     has exactly the lines that the files held when its maker looked them up. A broken run had a
//     source that changed. No record becomes two tasks of a run. In the end another run is sealed,
//     although one machine may be blind for good.
//   - Newer versions: an envelope that cannot be read waits in a work queue and never goes to
//     quarantine. A row that cannot be read is neither written over nor removed, and the work that
//     depends on it waits. (Only a member's row is removed, when it is silent for its own lease,
//     P5.3.)
//   - Interrupted redrives: tasks that are done lie in quarantine in the end, are put home by a
//     redrive whose deletes are not answered, and are redriven again. They are not done again.
//   - Rows that stand by themselves: those of the election, of a range of ids, of a claim and of a
//     gate are gone or come back as they were. No program is given a number twice. Two programs are
//     given the same number only if the row was lost. A key is granted once in its interval, and
//     once more only if its row was lost.
//   - Named runs: a command is given at random moments on several machines, while those who send
//     die or stand still and rows of the run vanish or come back. Each task has one identity. Mode
//     once does none twice if nothing else goes wrong. The last command ends well, or says that the
//     run's row went.
//   - Accounts that refuse for good: what such an account does not take is sent to the others
//     within three minutes. Then an operator gives it up as the runbook says, and a repair puts
//     again what lay in it.
//   - Rows of runs that come back, also after all is closed and forgotten: no closed run stays
//     sealed if the ledger has forgotten it.
//   - Removals: a redriven task goes home into an account while that is drained and removed.
//     Nothing is left in an account that was removed.
//
// Mutants, mistakes that a reader might make, are listed as data (testdata/mutants.txt here and
// beside the code that they spoil). A test plays them one after the other until each is found.
package worlds
