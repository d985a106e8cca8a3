// Package peek looks at the messages that wait in a workload's queues, and takes none.
//
// Of a queue the service shows the first 32 visible messages and an approximate count of all. So
// what is not shown is either behind those, or hidden: being handled, or put back for later.
package peek
