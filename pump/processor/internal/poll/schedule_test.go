package poll

import (
	"testing"
	"time"
)

func TestIdleQueuesTogetherAreAskedTenTimesASecond(t *testing.T) {
	if d := idleBound(96); d != 9600*time.Millisecond {
		t.Errorf("96 pairs are idle for %v, together more than ten gets a second", d)
	}
}
