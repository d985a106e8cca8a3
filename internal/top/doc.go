// Package top shows a workload in a terminal, live: the headline and the figures of the page, one
// table at a time, from the same readings (status.Watcher).
package top
