//go:build !linux

package main

func run(options) error { return untried{"systemd runs on Linux only"} }
