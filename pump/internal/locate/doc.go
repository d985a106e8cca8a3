// Package locate finds the account in which the row of a workload is, and refuses
// configurations that would make a second workload of the same name elsewhere (A8).
package locate
