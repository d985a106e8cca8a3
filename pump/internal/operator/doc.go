// Package operator is what the commands of an operator share: a workload opened by a
// configuration, and word of a change to its members.
package operator
