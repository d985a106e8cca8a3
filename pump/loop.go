package pump

import "time"

// LoopState is how one loop gets on. A loop goes round whether its attempts succeed or fail, and
// whether there is work or none. A loop that has not gone round for longer than Most is stuck, and
// another process has to do its work.
type LoopState struct {
	Name   string
	Rounds uint64        // so far
	Most   time.Duration // the longest time between two; 0: it need not go round now
}
