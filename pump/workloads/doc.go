// Package workloads shows a workload and deletes it with all its queues and rows.
package workloads
