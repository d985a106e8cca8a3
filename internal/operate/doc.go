// Package operate has the commands by which operators look at a workload and change it. Both
// binaries have those that only look.
package operate
