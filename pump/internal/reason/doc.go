// Package reason says in words why a process is not ready, and in numbers how its loops get on.
package reason
