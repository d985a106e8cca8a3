// Package money keeps a workload within what a UTC day may cost (pump.Budget.CostPerDay). The
// process that samples the queues says in its beats what the day has cost. From that, and from what
// each process says that it spends, every processor takes its share of the rest of the day. All use
// the same rule and the same rows. A processor slows the polling of empty queues first, then gets.
// Requests that end work, keep it or record it are paid for and never held back.
package money
