// Package leases keeps messages hidden while they are in hand ([Keeper]), and says for how long
// they are hidden and when failed tasks are tried again ([Timing]).
package leases
