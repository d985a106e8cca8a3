// Package sampling looks at all queues of a workload now and then, for the metrics by which people
// are alarmed and processors are scaled. One process of all does it, within its budgets and at a
// bounded rate: see "What waits" in docs/design.md.
package sampling
