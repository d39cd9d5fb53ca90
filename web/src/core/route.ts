// Where the page is: what stands behind the # of its address. The paths of the API
// stay the API's own, and a link holds the whole state of a screen.

export interface Route {
  /** The screen, and what of it: `["topics", "orders", "messages"]`. */
  path: string[];
  query: Record<string, string>;
}

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
};

export function parseRoute(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = (cut < 0 ? text : text.slice(0, cut)).split("/").filter(Boolean).map(decode);
  const query = cut < 0 ? {} : Object.fromEntries(new URLSearchParams(text.slice(cut + 1)));
  return { path, query };
}

/** The address of a route; what is empty in its query is left out. */
export function href(
  path: readonly (string | number)[],
  query: Record<string, string | number | undefined> = {},
): string {
  const set = Object.entries(query).filter(([, v]) => v !== undefined && v !== "");
  const search = new URLSearchParams(set.map(([k, v]) => [k, String(v)])).toString();
  return `#/${path.map((p) => encodeURIComponent(p)).join("/")}${search && `?${search}`}`;
}
