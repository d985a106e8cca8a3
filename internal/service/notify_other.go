//go:build !unix

package service

import "errors"

func notify(string, string) error { return errors.New("this system has no such sockets") }
