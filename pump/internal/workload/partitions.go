package workload

import (
	"fmt"

	"github.com/queuepump/queuepump/codec"
)

// ClaimParts is how many partitions a workload's claims are spread over: one takes 2,000 requests a
// second and a claimed task makes three.
const ClaimParts = 16

// ClaimsPartition is one of the [ClaimParts] partitions with the claims of a workload.
func ClaimsPartition(workload string, part int) string {
	return fmt.Sprintf("%s.claims.%x", workload, part)
}

// GatesPartition is the partition with the gates of a workload.
func GatesPartition(workload string) string { return workload + ".gates" }

// IDsPartition is the partition with the ranges of ids of a workload.
func IDsPartition(workload string) string { return workload + ".ids" }

// LogPartition is the partition with the log of a workload's operators.
func LogPartition(workload string) string { return workload + ".log" }

// ResultsPartition is the partition with the rows about a workload's results.
func ResultsPartition(workload string) string { return workload + ".results" }

// ElectionPartition is the partition with the rows of a workload's elections.
func ElectionPartition(workload string) string { return workload + ".election" }

// NamedKey is the key in [ElectionPartition] of the election of who sends a run with a name.
func NamedKey(run codec.RunID) string { return "run." + run.String() }
