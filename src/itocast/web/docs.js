// Swagger UI of this server's own OpenAPI document.
"use strict";

SwaggerUIBundle({ url: "openapi.json", dom_id: "#interface", validatorUrl: null, deepLinking: true });
