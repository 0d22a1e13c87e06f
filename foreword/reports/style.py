"""The style sheet of all pages: light and dark, from phones to wide screens."""

CSS = """
:root {
  --paper: #fcfcfa; --card: #ffffff; --ink: #1d2129; --muted: #656d7a; --grid: #e5e6e3;
  --accent: #2458c5; --second: #c4561a; --mark: #fdeeb5;
  --cell0: #2458c5; --cell1: #c4561a; --cell2: #1f8a4c; --cell3: #8a3fb5;
  --cell4: #b8860b; --cell5: #0f8b8d; --cell6: #c2306b; --cell7: #6b6f76;
  --cell8: #7a5230; --cell9: #5f7d0e; --cell10: #4b3fd1; --cell11: #a3423c;
  color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1b1e24; --ink: #e6e8ec; --muted: #98a1af; --grid: #2d323b;
    --accent: #84aaff; --second: #f3a067; --mark: #57470f;
    --cell0: #84aaff; --cell1: #f3a067; --cell2: #6fd39a; --cell3: #cf9bf0;
    --cell4: #e6c35c; --cell5: #63d0d2; --cell6: #f58ab4; --cell7: #aab0b8;
    --cell8: #cfa27c; --cell9: #b5d45c; --cell10: #a9a2ff; --cell11: #ee9a94;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.6rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.015em; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .8rem; letter-spacing: -.005em; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.meaning { max-width: 46rem; margin: .8rem 0; }
.lead { font-size: 1.06rem; color: var(--muted); max-width: 46rem; }
.note { color: var(--muted); font-size: .88rem; }
.tiles {
  display: flex; flex-wrap: wrap; gap: 1px;
  margin: 1.7rem 0 0; background: var(--grid); border: 1px solid var(--grid);
  border-radius: 12px; overflow: hidden;
}
.tile { background: var(--card); padding: .8rem 1rem .75rem; flex: 1 1 9.4rem; line-height: 1.35; }
.tile b { display: block; white-space: nowrap; font-size: 1.4rem; font-weight: 600;
  line-height: 1.5; letter-spacing: -.02em; }
.tile span { color: var(--muted); font-size: .82rem; }
.card {
  background: var(--card); border: 1px solid var(--grid); border-radius: 12px;
  padding: .9rem 1rem; margin: 0;
}
figure figcaption { font-size: .88rem; font-weight: 600; margin-bottom: .35rem; }
figure svg, figure img { display: block; max-width: 100%; height: auto; }
figure img { border-radius: 6px; }
.wide, .narrow, .half.large { display: none; }
.wide { display: block; }
svg text { font-family: inherit !important; }
.pair { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28.5rem), 1fr)); }
.pair, .card + .card { margin-top: 1rem; }
.pair .card { margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .38rem .8rem .38rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--muted); font-weight: 500; }
thead th { vertical-align: bottom; }
tr:last-child td, tbody tr:last-child th { border-bottom: 0; }
td, tbody th { overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
td.t:first-child { min-width: 5.5rem; }
tr > :last-child { padding-right: 0; }
tbody th { width: 12rem; }
details { background: var(--card); border: 1px solid var(--grid); border-radius: 12px;
  margin: .6rem 0; }
summary { cursor: pointer; padding: .65rem 1rem; font-weight: 500; }
details > div { padding: 0 1rem .9rem; }
.sample { padding: .7rem 0; border-top: 1px solid var(--grid); white-space: pre-wrap;
  overflow-wrap: anywhere; }
.sample:first-child { border-top: 0; padding-top: .2rem; }
.sample .from { color: var(--muted); }
.sample .above { display: block; font-size: .88rem; }
mark { background: var(--mark); color: inherit; border-radius: 4px; padding: 0 .2em; }
pre, code { font: .84rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre, code { overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; }
footer { margin-top: 3rem; color: var(--muted); font-size: .85rem; }
@media (max-width: 30rem) {
  main { padding: 1.6rem .9rem 3rem; } h1 { font-size: 1.5rem; } tbody th { width: auto; }
}
@media (max-width: 61.99rem) { .wide { display: none; } .half.large { display: block; } }
@media (max-width: 31.99rem) {
  .half, .half.large { display: none; } .narrow { display: block; }
  /* A table becomes a list: the first cell of each row, and under it the others by name. */
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  td, td.n { display: flex; justify-content: space-between; gap: 1rem; padding: .15rem 0;
    border: 0; white-space: normal; text-align: right; }
  td::before { content: attr(data-name); color: var(--muted); text-align: left; }
  td:first-child:not(.n) { display: block; text-align: left; font-weight: 600; }
  td:first-child:not(.n)::before { content: none; }
  table, tbody, tr, .pairs th, .pairs td { display: block; }
  tr { padding: .45rem 0; border-bottom: 1px solid var(--grid); }
  tr:last-child { border-bottom: 0; }
  .pairs th { width: auto; padding: 0; border: 0; } .pairs td { text-align: left; }
}
@media print { details > div { display: block; } .card, details, .tiles { break-inside: avoid; } }
"""
