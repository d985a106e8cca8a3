// Package status reads how a workload is: its runs, instances, queues and accounts.
package status
