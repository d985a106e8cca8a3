//go:build !race

package azure

const racing = false
