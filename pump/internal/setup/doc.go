// Package setup makes an open workload of a configuration. [Complete] checks the configuration and
// fills in what is not set. [Elsewhere] and [Rivals] find the account in which the workload's row
// is, so that no second workload of the name is made in another account (A8). [Open] reads the
// row for a command of an operator.
package setup
