//go:build !linux

package filestore

import "time"

// thisHost makes do with the wall clock, which all processes share too. Set forward it
// ends leases early; set back it makes those that nobody renews last longer. A process's
// end frees its locks without any clock.
func thisHost() host {
	return host{
		uptime: func() time.Duration { return time.Duration(time.Now().UnixNano()) },
		wall:   time.Now,
	}
}
