//go:build !planted

package control

const planted mistake = ""
