// Package doctor looks for what is wrong with a workload, its accounts and its processes, and says
// for each finding how bad it is and how to mend it.
//
// All checks are made side by side, each with a deadline of its own, so that an account that does
// not answer costs no other check its time. A check never guesses: one that gets
// no answer says nothing, and the account that did not answer is the finding.
//
// Two looks, a beat apart, tell what grows from what is there: messages in quarantine, requests
// that are refused as too many, segments that stay without an owner.
//
// A credential is tried on a queue and a row of the doctor's own, which are removed at the end.
// Their names say when they were made. The next doctor removes what an interrupted one has left.
package doctor
