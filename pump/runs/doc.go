// Package runs lists, shows and ends the runs of a workload, and waits until one is done.
package runs
