// Package member binds a process to the cluster of its workload: it beats, follows the view, shares
// limits, and tells the process which segments it holds and which it must give up.
//
// # Reason
//
// Reason says in words why a process is not ready, and in numbers how its loops get on.
package member
