package redismodel

// list is what record.lua and seals.lua write: names, or processes, some of them with a time.
type list struct {
	members map[string]int64
	end     int64
}

func (s *Server) list(key string) *list {
	l := s.lists[key]
	if l == nil {
		if s.lists == nil {
			s.lists = make(map[string]*list)
		}
		l = &list{members: make(map[string]int64)}
		s.lists[key] = l
	}
	if s.ms() > l.end {
		clear(l.members)
	}
	return l
}

// List returns what is on that list, by member, and how long it lives: -2 if it is not there.
func (s *Server) List(key string) (members map[string]int64, left int64) {
	l := s.list(key)
	if len(l.members) == 0 {
		return nil, -2
	}
	return l.members, l.end - s.ms()
}

func (l *list) sweep(now int64) {
	for member, at := range l.members {
		if at <= now {
			delete(l.members, member)
		}
	}
}

// Record is record.lua.
func (s *Server) Record(index, record, process string, life int64, add, remove []string) (there bool) {
	l := s.list(record)
	there = len(l.members) > 0
	for _, name := range add {
		l.members[name] = 0
	}
	l.end = s.ms() + life
	for _, name := range remove {
		delete(l.members, name)
	}
	all := s.list(index)
	all.members[process] = s.ms() + life
	all.end = s.ms() + life
	all.sweep(s.ms())
	return there
}

// NoteSeal is seals.lua.
func (s *Server) NoteSeal(key, name string, life int64) {
	l := s.list(key)
	left := int64(-2)
	if len(l.members) > 0 {
		left = l.end - s.ms()
	}
	l.sweep(s.ms())
	l.members[name] = s.ms() + life
	l.end = s.ms() + max(left, life)
}
