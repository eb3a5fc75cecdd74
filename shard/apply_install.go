package shard

// installDestination makes a version known. Versions are immutable: installing one again changes nothing, and an older one that arrives
// late never becomes the newest.
func (t *tx) installDestination(c *InstallDestination) (Result, error) {
	if rej := c.shape(); rej != nil {
		return Result{Rejected: rej}, nil
	}
	d := &c.Destination
	_, known, err := loadDestination(t.st, d.Namespace, d.Name, d.Version)
	if err != nil {
		return Result{}, err
	}
	if !known {
		if err := t.st.Set(destinationKey(d.Namespace, d.Name, d.Version), encodeDestination(d)); err != nil {
			return Result{}, err
		}
	}
	newest, any, err := newestVersion(t.st, d.Namespace, d.Name)
	if err != nil {
		return Result{}, err
	}
	if any && newest >= d.Version {
		return Result{Deduplicated: known}, nil
	}
	e := newRecord(10)
	e.uint(d.Version)
	if err := t.st.Set(newestKey(d.Namespace, d.Name), e.b); err != nil {
		return Result{}, err
	}
	t.emit(Effect{Kind: EffectInstalled, Namespace: d.Namespace, Destination: d.Name})
	return Result{}, nil
}
