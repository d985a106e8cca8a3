package control

// A mistake can be planted in a program built with the tag "planted", to see
// that the tests of the cluster find it. In every other build planted is a
// constant and the planted code is not there.
type mistake string

const (
	claimWithoutETag mistake = "an owner row is written over whatever version is there"
	wallClockExpiry  mistake = "a member is dead when its stamp is old by the observer's wall clock"
	noTrustMargin    mistake = "trust lasts a lease from the answer, and death takes no longer"
	noReadBack       mistake = "a claim without an answer counts as won"
	lateBeatRestores mistake = "a beat that is answered after trust ended restores it"
	silenceCounted   mistake = "time without reads counts as silence of the others"
	listIgnored      mistake = "an entry goes stale whatever its owner's beats list"
	membersFirst     mistake = "members are read before owners"
	evictWithoutETag mistake = "an eviction removes whatever version is there"
	epochNotRaised   mistake = "a claim keeps the epoch"
	noDrainWait      mistake = "a segment is given up while work of it is in hand"
	keepWhenEvicted  mistake = "who was evicted keeps what it held"
	releaseBeforeEnd mistake = "a segment is written unowned before its owner stops trusting it"
	leadWithoutETag  mistake = "leadership is taken whatever version the election row has"
	leaderNeverEnds  mistake = "a leader trusts its term until a beat of its own fails on the ETag"
)
