//go:build race

package azure

// racing: the race detector makes pools forget at random, so that counting
// allocations means nothing.
const racing = true
