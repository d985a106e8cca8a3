// Package quarantine lists, redrives and drops the messages that processors gave up.
//
// # Peek
//
// [Peek] looks at the messages that wait in a workload's queues, [Quarantine.Peek] at those in
// quarantine. Neither takes any.
//
// The service shows the first 32 visible messages of a queue and an approximate count of all. The
// others are behind those, or hidden: being handled, or put back for later.
package quarantine
