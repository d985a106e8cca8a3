package pump

import "time"

// LoopState is how one of the loops that a process consists of gets on. A loop goes round whether
// its attempts succeed or fail, and whether there is work or none: one that has not gone round for
// longer than Most is stuck, and another process has to do its work.
type LoopState struct {
	Name   string
	Rounds uint64        // so far
	Most   time.Duration // the longest time between two; 0: it need not go round now
}
