// Package workloads shows a workload and deletes it with all its queues and rows.
//
// # Deletion
//
// Deletion removes the rows of a workload, those of all packages that keep some. It only orders the
// rows: the caller decides who may delete a workload, and when.
package workloads
