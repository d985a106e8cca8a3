// Package queues is the accounts and queues of a workload as the engine uses them. Each request is
// paid from the budgets of its account and queue, has a deadline, is counted, and tells the queue's
// health.
package queues
