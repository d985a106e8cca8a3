// Package setup opens a workload from a configuration. [Complete] checks the configuration and
// fills in what is not set. [Elsewhere] and [Rivals] find the account that has the workload's row,
// so that no second workload of the name is made in another account (A8). [Open] reads the row for
// a command of an operator.
package setup
