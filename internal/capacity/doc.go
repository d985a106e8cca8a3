// Package capacity says what a workload needs: accounts, queues, machines, connections,
// requests and money, and which of them is the bottleneck.
//
// The heart is one line (origins H2): throughput = threads x instances / seconds per task,
// until a shared resource is full. The shared resources are the published limits of accounts and
// queues, which count messages; how many tasks a message holds is measured on the user's own
// input with the real codec ([Measure]). The pump's requests follow a model of its
// rules (gets.go says how it polls), checked against a run in virtual time within 10 %.
package capacity
