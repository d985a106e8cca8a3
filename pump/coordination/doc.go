// Package coordination gives programs what a workload's table is good for besides tasks: gates at
// which processes wait until an operator opens them ([Gate]), numbers that no two processes get
// ([IDRange]), and claims of a key for an interval ([Claims]). Nothing of it needs a distributor or
// a processor; it needs the table that gates.Table gives, and the name of the workload.
package coordination
