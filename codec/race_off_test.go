//go:build !race

package codec

const racing = false
