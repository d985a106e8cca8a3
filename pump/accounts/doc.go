// Package accounts says which storage accounts a workload uses, and changes that while everything
// runs: an account is added, drained and, once its queues are empty, removed.
//
// Each function is one command of an operator. It reads the workload's row, changes its map by
// compare-and-swap, and nudges the members, which follow the map.
package accounts
