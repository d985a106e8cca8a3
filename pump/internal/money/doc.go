// Package money keeps a workload within what a UTC day may cost (pump.Budget.CostPerDay). The process
// that samples the queues says in its beats what the day has cost; from that and from what each
// process says that it spends, every processor takes its share of what is left of the day, by the same
// rule from the same rows. It slows the polling of empty queues first, then gets. What ends work, keeps
// it or records it is paid for and never held back.
package money
