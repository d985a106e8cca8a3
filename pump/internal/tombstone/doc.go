// Package tombstone makes the message by which an owner learns that quarantined tasks were
// given up (P4.4), and finds the row of a cause that fits into no message.
package tombstone
