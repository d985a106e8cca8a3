// Package realaccounts tries the pump on storage accounts of Azure and says what differs from the
// simulator. The trial is a test, TestAccounts; each of its parts, and each rule and case, is one
// below it, which -run and -skip choose. `make azure` runs it; without -azure it is skipped,
// because it costs cents. The other files hold what it asks, and how.
//
//	accounts.go      which accounts, by environment variables
//	budget.go        counts every request, and refuses those beyond the budget
//	gateway.go       puts the requests of the real binaries under the same budget
//	rules*.go        each rule of azsim/AZURE.md that rests on memory, asked of both sides
//	prober.go        how a rule is asked
//	trial_test.go    the trial, and its parts: the suite of pump/storage/storagetest, rules, figures
//	pump_test.go     the whole pump by real binaries, `distributor plan` beside it, and kill -9
//	clean_test.go    removes what this run has made, and what an earlier one has left
//	report_test.go   what came out, as JSON and as Markdown
//
// Everything that it makes has a name that begins with "qpaz", the time and a random part. Rows of
// the pump's own table begin with such a name too.
package realaccounts
