// Package processtest holds the tests of the binaries as processes: what a
// user types, what a crash leaves, and what a supervisor sees. The tests build
// the binaries themselves.
package processtest
