// Package reason says in words why a process is not ready.
package reason
