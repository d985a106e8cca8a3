// Package gates opens, closes and lists the gates of a workload for an operator.
// Processors wait at a gate before they take their first message. The gate itself is
// coordination.Gate.
package gates
