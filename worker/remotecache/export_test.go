package remotecache

// PushRate has registries take so many bytes a second at least.
func (c *Cache) PushRate(bytes int64) { c.rate = bytes }
