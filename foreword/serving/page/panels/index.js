// The panels, in the order of the page: a line for each.
//
// A panel's module exports
//   title          its name in the list of panels
//   lead           a sentence under its heading (may be left out)
//   needs(models, runs)
//                  null if these models, or the folders that are watched, have what it shows, else a
//                  sentence that says what is needed
//   recorded       whether `foreword app --export` holds all that it asks
//   show(root, context)
//                  build it in `root`; may return a function that ends it. `context` has `models` (of
//                  /v1/models), `runs` (of /runs), `query` (URLSearchParams of the address),
//                  `keep({key: value})`, `text`, `announce(text)` and `signal`, aborted when the panel is left.

import * as generate from "./generate.js";
import * as inside from "./inside.js";
import * as sentence from "./sentence.js";
import * as time from "./time.js";
import * as tuned from "./tuned.js";
import * as watch from "./watch.js";

export const panels = {
  sentence,
  generate,
  inside,
  time,
  tuned,
  watch,
};
