// Package workloads shows a workload and deletes it with all its queues and rows.
//
// # Deletion
//
// Deletion removes the rows of a workload, those of all packages that keep some. It knows
// no order but that of the rows: who may delete a workload, and when, is the caller's to say.
package workloads
