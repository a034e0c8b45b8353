"""Where matrices live: places and blocks, tiles, process grids, reading folders in parallel."""
