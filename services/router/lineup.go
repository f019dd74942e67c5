package router

import (
	"slices"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// lineup is what of a queue may be delivered: the highest priority first, and
// what has the same in order of key.
type lineup struct {
	plain  readyList // of priority 0: all of a queue without priorities
	levels []*level  // those above that have entries, the highest first
	most   uint8     // what is above counts as this
	size   int
}

// level is the entries of one priority.
type level struct {
	readyList
	priority uint8
}

// push puts e in its place.
func (u *lineup) push(e *broker.Entry) {
	u.size++
	if p := min(e.Priority, u.most); p > 0 {
		u.level(p).push(e)
		return
	}
	u.plain.push(e)
}

// level is the level of a priority, made if there is none.
func (u *lineup) level(p uint8) *readyList {
	i, found := u.find(p)
	if !found {
		u.levels = slices.Insert(u.levels, i, &level{priority: p})
	}
	return &u.levels[i].readyList
}

func (u *lineup) find(p uint8) (int, bool) {
	return slices.BinarySearchFunc(u.levels, p, func(v *level, p uint8) int { return int(p) - int(v.priority) })
}

// peek is the entry that is next, nil if there is none.
func (u *lineup) peek() *broker.Entry {
	if len(u.levels) > 0 {
		return u.levels[0].peek()
	}
	return u.plain.peek()
}

// pop removes what peek shows.
func (u *lineup) pop() *broker.Entry {
	if len(u.levels) == 0 {
		e := u.plain.pop()
		if e != nil {
			u.size--
		}
		return e
	}
	e := u.levels[0].pop()
	u.size--
	u.trim(0)
	return e
}

// trim removes a level that has become empty.
func (u *lineup) trim(i int) {
	if u.levels[i].size == 0 {
		u.levels = slices.Delete(u.levels, i, i+1)
	}
}

// remove takes e out; false if it is not here.
func (u *lineup) remove(e *broker.Entry) bool {
	if p := min(e.Priority, u.most); p > 0 {
		i, found := u.find(p)
		if !found || !u.levels[i].remove(e) {
			return false
		}
		u.size--
		u.trim(i)
		return true
	}
	if !u.plain.remove(e) {
		return false
	}
	u.size--
	return true
}

// ahead yields entries about in order until f returns false; then it does too.
func (u *lineup) ahead(f func(*broker.Entry) bool) bool {
	for _, v := range u.levels {
		if !v.ahead(f) {
			return false
		}
	}
	return u.plain.ahead(f)
}

// take moves all entries of other here.
func (u *lineup) take(other *readyList) {
	if u.most == 0 {
		u.size += other.size
		u.plain.take(other)
		return
	}
	for e := other.pop(); e != nil; e = other.pop() {
		u.push(e)
	}
}

// limit changes what the highest priority is.
func (u *lineup) limit(most uint8) {
	if most == u.most {
		return
	}
	all := *u
	*u = lineup{most: most}
	for e := all.pop(); e != nil; e = all.pop() {
		u.push(e)
	}
}
