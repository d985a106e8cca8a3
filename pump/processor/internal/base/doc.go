// Package base is what the parts of one Run of a processor share ([Env]): its configuration,
// storage, log, counts and ends. It also keeps what the parts ask each other about runs: their
// rows, and tallies of them.
package base
