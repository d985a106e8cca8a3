package member

import (
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// downAfter is for how long an account may leave requests unanswered before it is said: one lost
// answer costs a request's deadline, and is not worth saying.
const downAfter = 5 * time.Second

// OfAccounts are what is amiss with the accounts of a process.
func OfAccounts(accounts []pump.AccountState) (reasons []string) {
	for _, a := range accounts {
		switch {
		case a.Refused:
			reasons = append(reasons, fmt.Sprintf("account %s refuses the credential", a.Name))
		case a.DownSeconds >= downAfter.Seconds():
			reasons = append(reasons,
				fmt.Sprintf("account %s has not answered for %.0f s", a.Name, math.Floor(a.DownSeconds)))
		}
	}
	return reasons
}

// OfCluster are what is amiss with the process's place in the cluster.
func OfCluster(c *pump.ClusterState) (reasons []string) {
	switch {
	case c.Members == 0:
		return []string{"it has not joined the cluster"}
	case c.Missing > 0:
		reasons = append(reasons, fmt.Sprintf("it lacks %d of its %d segments", c.Missing, c.Planned))
	}
	if c.DarkSeconds > 0 {
		reasons = append(reasons,
			fmt.Sprintf("the control account has not answered for %.0f s", math.Ceil(c.DarkSeconds)))
	}
	return reasons
}
